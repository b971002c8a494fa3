"""Public models by name: geometry, parameters and quants, with user catalogues merged over them."""

from archonctl.catalogue.load import load_catalogue
from archonctl.catalogue.values import Catalogue, CatalogueModel, Quant

__all__ = ["Catalogue", "CatalogueModel", "Quant", "load_catalogue"]
