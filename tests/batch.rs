//! Whether `throttle batch` does what it says: by running the program, against the strict server.

mod support;

#[path = "batch/desk.rs"]
mod desk;
#[path = "batch/flags.rs"]
mod flags;
#[path = "batch/input.rs"]
mod input;
#[path = "batch/load.rs"]
mod load;
#[path = "batch/output.rs"]
mod output;
#[path = "batch/resume.rs"]
mod resume;
#[path = "batch/stops.rs"]
mod stops;
