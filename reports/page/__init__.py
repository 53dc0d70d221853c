"""One self-contained HTML page for a comparison: tables, plots, a timeline and a map of the pools; no network."""
