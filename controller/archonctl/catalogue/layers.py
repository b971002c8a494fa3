"""Between a geometry and its row in a catalogue, where all layers of one kind are alike."""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.catalogue.schema import Attention, GeometryRow
from archonctl.errors import ModelError
from archonctl.model.geometry import AttentionKind, Geometry, Layer, Recurrent

_KINDS: dict[str, AttentionKind] = {
    "F": "full",
    "S": "sliding",
    "C": "chunked",
    "M": "mla",
    "R": "recurrent",
    "N": "none",
}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}
_COUNTS = (
    "experts",
    "experts_used",
    "experts_shared",
    "nextn_layers",
    "element_bytes",
    "indexer_dim",
    "sharing_layers",
)


def missing_kinds(row: GeometryRow) -> list[str]:
    """Kinds of layers that ``pattern`` names and nothing describes ("full", "mla", ...)."""
    kinds = [kind for letter, kind in _KINDS.items() if letter in _spread(row) and kind != "none"]
    return [kind for kind in kinds if getattr(row, kind) is None]


def geometry_of(row: GeometryRow, name: str, trained_context: int) -> Geometry:
    """The geometry of a row without ``missing_kinds``."""
    made: dict[str, Layer] = {}
    for letter, kind in _KINDS.items():
        said = getattr(row, kind, None)
        if isinstance(said, Attention):
            value = said.head_dim_v or said.head_dim
            widths = said.kv_heads * said.head_dim, said.kv_heads * value
            window = 0 if kind == "full" else said.window or 0
            made[letter] = Layer(0, kind, said.kv_heads, said.head_dim, value, *widths, window)
    if row.mla:
        width = row.mla.latent + row.mla.rope
        made["M"] = Layer(0, "mla", 1, width, row.mla.latent, width, 0)
    return Geometry(
        architecture=row.architecture,
        name=name,
        layers=tuple(_at(made.get(letter), _KINDS[letter], i) for i, letter in enumerate(_spread(row))),
        hidden=row.hidden,
        heads=row.heads,
        vocab=row.vocab,
        trained_context=trained_context,
        recurrent=Recurrent(**row.recurrent.model_dump()) if row.recurrent else None,
        **{key: getattr(row, key) for key in _COUNTS},
    )


def _spread(row: GeometryRow) -> str:
    return (row.pattern * (row.layers // len(row.pattern) + 1))[: row.layers]


def _at(like: Layer | None, kind: AttentionKind, index: int) -> Layer:
    if like is None:
        return Layer(index, kind)
    dims = like.kv_heads, like.head_dim_k, like.head_dim_v, like.k_width, like.v_width, like.window
    return Layer(index, kind, *dims)


def row_of(geometry: Geometry, where: str) -> Mapping[str, object]:
    """The row of a geometry, as TOML values.

    Raises ModelError ``catalogue-uneven-layers`` where layers of one kind differ, or have no form in a catalogue.
    """
    letters = "".join(_LETTERS[layer.attention] for layer in geometry.layers)
    row: dict[str, object] = {
        "architecture": geometry.architecture,
        "layers": len(letters),
        "pattern": _period(letters),
        "hidden": geometry.hidden,
        "heads": geometry.heads,
        "vocab": geometry.vocab,
    }
    for kind in ("full", "sliding", "chunked", "mla"):
        found = {_dims(layer) for layer in geometry.layers if layer.attention == kind}
        if len(found) > 1:
            message = f"its {kind} layers are of {len(found)} shapes; a catalogue has one for each kind"
            hint = "plan it by its own file: archonctl plan reads every layer"
            raise ModelError("catalogue-uneven-layers", message, where=where, hint=hint)
        if found:
            row[kind] = _described(kind, next(iter(found)))
    if (state := geometry.recurrent) is not None:
        fields = ("kind", "conv_elements", "ssm_elements", "conv_kernel", "state_size", "inner_size", "groups")
        row["recurrent"] = {key: getattr(state, key) for key in (*fields, "time_step_rank", "ssm_element_bytes")}
    return row | {key: value for key in _COUNTS if (value := getattr(geometry, key))}


def _dims(layer: Layer) -> tuple[int, int, int, int]:
    return layer.kv_heads, layer.head_dim_k, layer.head_dim_v, layer.window


def _described(kind: str, dims: tuple[int, int, int, int]) -> dict[str, int]:
    heads, key, value, window = dims
    if kind == "mla":
        return {"latent": value, "rope": key - value}
    said = {"kv_heads": heads, "head_dim": key}
    return said | ({"head_dim_v": value} if value != key else {}) | ({"window": window} if window else {})


def _period(letters: str) -> str:
    """The shortest start that, repeated, gives the whole."""
    for size in range(1, len(letters)):
        if all(letter == letters[i % size] for i, letter in enumerate(letters)):
            return letters[:size]
    return letters
