"""What memory does: the encoding and recall workflows, one flow a file."""
