//! The contract that every registered control is held to.
