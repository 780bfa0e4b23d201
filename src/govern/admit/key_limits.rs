//! How much one key may be used, as `access.keys.<id>` in its tenant's `config` says: `rate_limit` and `budgets`, in the form they
//! have in the configuration file. Knows what they look like and enforces nothing.

use serde_json::{Map, Value};
use weir_config::settings::{Budget, Budgets, RateLimit, Window};

/// The highest limit, US dollars; as nanodollars it fits 63 bits.
const LIMIT_USD_MAX: f64 = 1e9;
const NANO_PER_USD: f64 = 1e9;

/// Reads `{requests_per_second, burst_size}`.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub(super) fn rate(path: &str, value: &Value) -> Result<RateLimit, String> {
    let accepted = || {
        format!(
            "`{path}` has to be an object with `requests_per_second` and `burst_size`, whole numbers of 1 to 4294967295"
        )
    };
    let fields = only(value, &["requests_per_second", "burst_size"]).ok_or_else(accepted)?;
    let number = |name: &str| {
        let given = fields.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        given.filter(|number| *number > 0).ok_or_else(accepted)
    };
    Ok(RateLimit { requests_per_second: number("requests_per_second")?, burst_size: number("burst_size")? })
}

/// Reads a list of `{window, hard_limit_usd, soft_limit_usd}`, each window once.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub(super) fn budgets(path: &str, value: &Value) -> Result<Budgets, String> {
    let refused = || {
        format!(
            "`{path}` has to be a list of objects with `window` (hourly, daily, weekly or monthly, each once), \
             `hard_limit_usd` and optionally `soft_limit_usd` (0 to {LIMIT_USD_MAX})"
        )
    };
    let mut budgets = Budgets::default();
    for entry in value.as_array().ok_or_else(refused)? {
        let (at, budget) = budget(entry).ok_or_else(refused)?;
        let slot = budgets.get_mut(at).filter(|slot| slot.is_none()).ok_or_else(refused)?;
        *slot = Some(budget);
    }
    Ok(budgets)
}

/// One budget, and the place of its window.
fn budget(entry: &Value) -> Option<(usize, Budget)> {
    let fields = only(entry, &["window", "hard_limit_usd", "soft_limit_usd"])?;
    let name = fields.get("window")?.as_str()?;
    let at = Window::ALL.iter().position(|window| window.as_str() == name)?;
    let soft_nano_usd = match fields.get("soft_limit_usd") {
        None | Some(Value::Null) => None,
        Some(soft) => Some(nano_usd(soft)?),
    };
    Some((at, Budget { hard_nano_usd: nano_usd(fields.get("hard_limit_usd")?)?, soft_nano_usd }))
}

fn nano_usd(value: &Value) -> Option<u64> {
    // The cast is exact: the range bounds the value.
    value.as_f64().filter(|usd| (0.0..=LIMIT_USD_MAX).contains(usd)).map(|usd| (usd * NANO_PER_USD).round() as u64)
}

/// The object, if it has no other field than these.
fn only<'a>(value: &'a Value, known: &[&str]) -> Option<&'a Map<String, Value>> {
    value.as_object().filter(|fields| fields.keys().all(|name| known.contains(&name.as_str())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_key_may_take_is_read() {
        let limit = rate("r", &json!({"requests_per_second": 5, "burst_size": 9})).unwrap();
        assert_eq!(limit, RateLimit { requests_per_second: 5, burst_size: 9 });
        let read = budgets(
            "b",
            &json!([
                {"window": "daily", "hard_limit_usd": 1.5, "soft_limit_usd": null},
                {"window": "monthly", "hard_limit_usd": 0.000_000_001, "soft_limit_usd": 0},
            ]),
        );
        let daily = Budget { hard_nano_usd: 1_500_000_000, soft_nano_usd: None };
        let monthly = Budget { hard_nano_usd: 1, soft_nano_usd: Some(0) };
        assert_eq!(read, Ok([None, Some(daily), None, Some(monthly)]));
        assert_eq!(budgets("b", &json!([])), Ok(Budgets::default()));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for value in [
            json!(5),
            json!({"requests_per_second": 5}),
            json!({"requests_per_second": 0, "burst_size": 1}),
            json!({"requests_per_second": 5_000_000_000_u64, "burst_size": 1}),
            json!({"requests_per_second": 1.5, "burst_size": 1}),
            json!({"requests_per_second": 5, "burst_size": 1, "burst": 2}),
        ] {
            let said = rate("config.x", &value).unwrap_err();
            assert!(said.starts_with("`config.x` has to be an object"), "{value}: {said}");
        }
        let day = |more: Value| {
            let mut entry = json!({"window": "daily", "hard_limit_usd": 1});
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            entry
        };
        for value in [
            json!({}),
            json!([day(json!({})), day(json!({}))]),
            json!([day(json!({"window": "yearly"}))]),
            json!([day(json!({"hard_limit_usd": -1}))]),
            json!([day(json!({"hard_limit_usd": 2e9}))]),
            json!([day(json!({"soft_limit_usd": "1"}))]),
            json!([day(json!({"limit": 1}))]),
            json!([{"window": "daily"}]),
        ] {
            let said = budgets("config.x", &value).unwrap_err();
            assert!(said.starts_with("`config.x` has to be a list"), "{value}: {said}");
        }
    }
}
