//! Laws of the reader of timelines.
