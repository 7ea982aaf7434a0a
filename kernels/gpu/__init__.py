"""Device routes: Pallas Mosaic GPU kernels, one file per operator. Imported only where they run or are lowered."""
