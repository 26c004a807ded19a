//! Laws of the simulation, and the accuracy of the diagnosis over it.

mod accuracy;
mod read_back;
mod ring_cases;
mod simulation;
