"""One rule a file, named after the problem; imported only when linting."""
