"""league: a football league's site on a tiny budget, with live matches, predictions and polling by ETag."""
