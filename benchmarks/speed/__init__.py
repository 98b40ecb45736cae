"""Speed: each job timed against the limit and against peers, interleaved in one run."""
