"""Records out of a memory and back: the export file, its writer and its reader."""
