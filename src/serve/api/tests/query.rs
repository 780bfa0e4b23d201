//! Reading a query takes time in proportion to its length.

use http::Uri;

use crate::api::query::{Parameters, TRACES};
use crate::effort::superlinear;

#[test]
fn a_query_is_read_in_time_that_is_linear_in_its_length() {
    for unit in ["limit=1&", "model=a", "a=b&", "&", "=", "%41", "%", "+", "a"] {
        // No URI is longer than 64 KiB.
        let uri = |length: usize| {
            let query = unit.repeat(length.min(60_000) / unit.len());
            Uri::builder().path_and_query(format!("/api/v1/traces?{query}")).build().unwrap()
        };
        let found = superlinear(uri, |uri| drop(Parameters::read(uri, TRACES)));
        assert_eq!(found, None, "{unit:?}");
    }
}
