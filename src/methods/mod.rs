//! (methods: under construction)
