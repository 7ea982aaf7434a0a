"""What every kernel has to keep on the machine that it runs on, and the faults that have to be found."""
