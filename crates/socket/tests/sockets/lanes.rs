//! Everything else in this directory, once more with engines that drive.

use crate::shared::again_under_the_engine;

#[test]
fn all_this_is_so_under_the_engine() {
    again_under_the_engine(&[]);
}
