"""Where events come from: files, generators, and many sources at once in one order."""
