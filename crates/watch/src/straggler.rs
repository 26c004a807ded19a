//! Who comes late into collectives, without clocks that agree.
