"""The web page of slides: a document, a script and a style."""
