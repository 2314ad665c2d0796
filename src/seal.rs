//! Sealed handles and their keys.
