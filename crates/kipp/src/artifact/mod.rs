//! The file on disk, hostile until proven.
