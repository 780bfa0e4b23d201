//! The weights of `fusion` that an operator names in the place of those in the binary, read at start and by `weir check`.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use weir_config::Settings;
use weir_inference::Fusion;

use super::StartError;

/// Most bytes of such a file.
const BYTES_MAX: u64 = 64 << 10;

/// Reads the file; `None` where the settings name none.
pub(crate) fn open(settings: &Settings) -> Result<Option<Arc<Fusion>>, StartError> {
    let Some(path) = &settings.security_analysis.fusion_model_path else { return Ok(None) };
    let about = |error: String| {
        StartError::Fusion(format!("security_analysis.fusion_model_path `{}`: {error}", path.display()))
    };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| about(format!("cannot be read: {error}; name a file that can be, or remove the setting")))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(about(format!("has more than {BYTES_MAX} bytes; a fusion model has a few hundred")));
    }
    Fusion::read(&text).map(Some).map_err(about)
}
