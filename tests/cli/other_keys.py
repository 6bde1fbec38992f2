"""A second catalogue, for commands that take several."""

from ephemera.keyspace import Catalogue, permanent

catalogue = Catalogue("orders")
ORDERS = catalogue.flag("order:x:{number}", lifetime=permanent(reason="a test"), purpose="Orders")
