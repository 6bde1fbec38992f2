"""What the documentation site needs besides MkDocs: pages from outside `docs/`, API pages, the navigation."""
