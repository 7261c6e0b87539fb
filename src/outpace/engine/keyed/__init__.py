"""What is kept by key: a step costs what it touches, however many keys there are."""
