//! A rate-limited HTTP client.
