"""Row-invariant operators, their references and the kernel contract."""
