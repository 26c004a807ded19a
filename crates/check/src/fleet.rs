//! Many nodes as one table: what most of them say, and who differs.
