"""A feed builder: clusters what is new for a user when there is enough of it, or it is time."""
