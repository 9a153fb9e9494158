//! Long histories, cut at random.
