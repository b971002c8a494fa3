"""Which known conversation a prompt goes on from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from archonctl.tiers.book import Book, Conversation
from archonctl.tiers.prefix import BLOCK_BYTES, Text


def test_who_was_here_often_and_stays_away_gives_way_to_who_is_here() -> None:
    """Else a long conversation that ended would hold its slot for hours, and those that go on would share the rest."""
    ended, goes_on, slow = (Conversation(name, Text(name.encode()).prefix) for name in ("ended", "goes on", "slow"))
    for second in range(0, 120, 2):
        ended.use(1000.0 + second)
    for minute in range(4):
        slow.use(900.0 + minute * 300.0)
    goes_on.use(1200.0)
    now = 1240.0
    assert ended.expected_uses(now) < goes_on.expected_uses(now) < slow.expected_uses(now)
    assert slow.expected_uses(1119.0 + 7 * 86400) < goes_on.expected_uses(now)


_PARTS = st.lists(st.sampled_from("abc"), max_size=4).map(lambda parts: "".join(part * BLOCK_BYTES for part in parts))
_PROMPTS = st.builds(lambda parts, end: (parts + end).encode(), _PARTS, st.sampled_from(["", "x", "xy", "z" * 5000]))


@given(st.lists(_PROMPTS, max_size=8, unique=True), _PROMPTS)
def test_the_longest_beginning_is_found_else_what_shares_most_whole_blocks(known: list[bytes], prompt: bytes) -> None:
    book = Book()
    for number, each in enumerate(known):
        book.know(Conversation(str(number), Text(each).prefix))
    match = book.match(Text(prompt))
    begun = [each for each in known if prompt.startswith(each)]
    if begun:
        assert match is not None
        assert (match.whole, known[int(match.conversation.id)]) == (True, max(begun, key=len))
        return
    shared = [next(n for n in range(len(prompt), -1, -1) if prompt[:n] == each[:n]) // BLOCK_BYTES for each in known]
    if max(shared, default=0) == 0:
        assert match is None
    else:
        assert match is not None
        assert not match.whole
        assert match.shared_bytes == max(shared) * BLOCK_BYTES
        assert shared[int(match.conversation.id)] == max(shared)
