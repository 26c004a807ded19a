//! The rhythm that a communicator has shown, and how long it may stand still.
