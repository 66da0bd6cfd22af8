"""One spelling for each operation of numbers: what is neutral goes, variants become one."""
