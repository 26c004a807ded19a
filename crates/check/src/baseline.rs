//! Values of an earlier, healthy moment, and what has changed since.
