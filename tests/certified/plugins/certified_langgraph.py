"""Selects our checkpointer: see `certified_langgraph_saver`."""
