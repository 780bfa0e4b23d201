//! Rate limits that several gateways share: buckets in the cache, out of which each gateway takes slices ahead of its requests.
//!
//! One script takes and gives back for many buckets at once. Each process numbers its exchanges, and the cache keeps the answer to the
//! latest one: an exchange whose answer was lost is sent again under its number and changes nothing a second time. A cache that
//! lost what it held has full buckets again, which is one further burst and no more; money is never kept here.

use std::sync::atomic::{AtomicU32, Ordering};

use uuid::Uuid;

use super::cache::{Cache, Reply};
use crate::error::ReadError;
use crate::leases::{Leased, Wish};

/// How long a gateway counts as one of several after its last exchange.
const ALIVE_MS: u32 = 3_000;
/// Wishes of one exchange.
pub(super) const WISHES_MAX: usize = 500;

/// `KEYS`: the gateways, the latest exchange of this one, and a bucket for each wish. `ARGV`: this gateway, the exchange's number,
/// how long a gateway counts, and for each wish its rate, burst and tokens. Times are microseconds of the cache's own clock; one
/// that went back fills nothing.
const SCRIPT: &str = r"
local kept = redis.call('HMGET', KEYS[2], 'number', 'answer')
if kept[1] == ARGV[2] then return kept[2] end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3] * 1000)
local gateways = redis.call('ZCARD', KEYS[1])
local answer = { tostring(gateways) }
for at = 3, #KEYS do
    local first = 4 + (at - 3) * 3
    local rate, burst, wish = tonumber(ARGV[first]), tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
    local credit = math.max(1, math.floor(burst / (2 * gateways)))
    local room = math.max(math.ceil(rate * 0.15), burst - gateways * credit)
    local bucket = redis.call('HMGET', KEYS[at], 'tokens', 'at')
    local tokens = room
    if bucket[1] then
        tokens = math.min(room, tonumber(bucket[1]) + math.max(0, now - tonumber(bucket[2])) * rate / 1000000)
    end
    local granted = wish
    if wish > 0 then granted = math.min(wish, math.floor(tokens)) end
    tokens = math.min(room, tokens - granted)
    redis.call('HSET', KEYS[at], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now))
    redis.call('PEXPIRE', KEYS[at], string.format('%.0f', math.ceil((room - tokens) / rate * 1000) + 1000))
    answer[at - 1] = string.format('%.0f', granted)
end
local text = table.concat(answer, ' ')
redis.call('HSET', KEYS[2], 'number', ARGV[2], 'answer', text)
redis.call('PEXPIRE', KEYS[2], 600000)
return text
";

/// This process among the gateways.
pub(super) struct Leases {
    process: Uuid,
    /// How many there were at the latest exchange.
    gateways: AtomicU32,
}

impl Default for Leases {
    fn default() -> Self {
        Self { process: Uuid::new_v4(), gateways: AtomicU32::new(1) }
    }
}

impl Leases {
    pub(super) fn gateways(&self) -> u32 {
        self.gateways.load(Ordering::Relaxed)
    }

    /// Takes and gives back, once for each `number`, however often it is called with it.
    pub(super) fn exchange(&self, cache: &Cache, number: u64, wishes: &[Wish]) -> Result<Leased, ReadError> {
        let wishes = wishes.get(..WISHES_MAX).unwrap_or(wishes);
        // One name in braces: where the cache is a cluster, all of it lies on one server.
        let mut words = vec!["EVAL".to_owned(), SCRIPT.to_owned(), (wishes.len() + 2).to_string()];
        words.push("weir:{limits}:gateways".to_owned());
        words.push(format!("weir:{{limits}}:process:{}", self.process.simple()));
        words.extend(wishes.iter().map(|wish| format!("weir:{{limits}}:{}:{}", wish.table, wish.whose.simple())));
        words.extend([self.process.simple().to_string(), number.to_string(), ALIVE_MS.to_string()]);
        for wish in wishes {
            words.extend([wish.rate.max(1).to_string(), wish.burst.max(1).to_string(), wish.tokens.to_string()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let unavailable = |reason: String| ReadError::Unavailable { reason: format!("the cache: {reason}") };
        let reply = cache.command(&words).map_err(|error| unavailable(error.to_string()))?;
        let leased = read(&reply, wishes).ok_or_else(|| unavailable("its answer cannot be read".to_owned()))?;
        self.gateways.store(leased.gateways, Ordering::Relaxed);
        Ok(leased)
    }
}

/// What was granted; never more than was wished for, whatever the cache says.
fn read(reply: &Reply, wishes: &[Wish]) -> Option<Leased> {
    let Reply::Text(text) = reply else { return None };
    let mut numbers = std::str::from_utf8(text).ok()?.split(' ').map(str::parse::<i64>);
    let gateways = u32::try_from(numbers.next()?.ok()?).ok()?.max(1);
    let granted = numbers.collect::<Result<Vec<_>, _>>().ok()?;
    let fits = granted.len() == wishes.len() && granted.iter().zip(wishes).all(|(given, wish)| *given <= wish.tokens);
    fits.then_some(Leased { gateways, granted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::credit;

    #[test]
    fn an_answer_that_grants_more_than_was_wished_for_is_none() {
        let wish = Wish { table: 't', whose: Uuid::nil(), rate: 1, burst: 1, tokens: 3 };
        let told = |text: &str| read(&Reply::Text(text.as_bytes().to_vec()), &[wish]);
        assert_eq!(told("2 3"), Some(Leased { gateways: 2, granted: vec![3] }));
        assert_eq!(told("0 0").map(|leased| leased.gateways), Some(1));
        for unfit in ["2 4", "2", "2 1 1", "2 x", ""] {
            assert_eq!(told(unfit), None, "{unfit}");
        }
        assert!(SCRIPT.contains("math.max(1, math.floor(burst / (2 * gateways)))") && credit(200, 3) == 33);
    }
}
