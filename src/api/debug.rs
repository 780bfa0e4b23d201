//! What helps to judge the gateway's judgement; there only while `server.debug_endpoints` is true, and then for everybody.
//!
//! | Method | Path                           | Answer                                                      |
//! |--------|--------------------------------|-------------------------------------------------------------|
//! | GET    | /debug/judge/golden_set/replay | the replay of the golden set below `SERVICE_GOLDEN_SET_PATH` |

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::{Api, to_json};

pub(super) async fn replay(api: Api, _ask: Ask) -> Answer {
    let golden = api.golden.clone().ok_or_else(|| {
        ErrorAnswer::unset("SERVICE_GOLDEN_SET_PATH is not set; set it to the folder of a golden set and start again")
    })?;
    api.read(move |_| {
        let report = golden.replay().map_err(|fault| ErrorAnswer::unset(fault.to_string()))?;
        to_json(&report)
    })
    .await
}
