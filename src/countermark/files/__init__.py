"""Files: reads and writes disks, and feeds what it reads to the pure rooms below."""
