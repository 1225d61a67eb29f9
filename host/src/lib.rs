//! Waterwheel.
