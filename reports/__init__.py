"""Results for people and machines: tables, plots, stories, run folders."""
