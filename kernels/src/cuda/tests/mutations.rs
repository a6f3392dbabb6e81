//! What the tests would notice: each barrier deleted, and shared memory a little too small.
