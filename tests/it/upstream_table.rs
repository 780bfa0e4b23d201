//! Promise: whatever upstreams, groups and routes there are and however they fare, each call goes where the documented order says
//! (address, header, routes, path, `upstream_url`), to the members of a group in the documented order, and nowhere else; no
//! upstream sees a call that its sender's key may not send there, nor a credential that is not its own.
//!
//! Settings and calls are drawn by chance; `model` says what has to come out.

mod draw;
mod fares;
mod model;
mod world;

use self::draw::Dice;
use self::world::World;
use crate::support::on_both_drivers;

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

on_both_drivers! {
    fn every_call_goes_where_the_table_says(driver) {
        let (worlds, calls) = (number("UPSTREAM_TABLE_WORLDS", 5), number("UPSTREAM_TABLE_CALLS", 100));
        let drawn = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = number("UPSTREAM_TABLE_SEED", u64::from(drawn.subsec_nanos()));
        println!("again with UPSTREAM_TABLE_SEED={seed} UPSTREAM_TABLE_WORLDS={worlds} UPSTREAM_TABLE_CALLS={calls}");
        let mut seen = model::Seen::default();
        for at in 0..worlds {
            let mut dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(at));
            let mut world = World::draw(driver, &mut dice);
            for number in 0..calls {
                if world.is_old() {
                    break;
                }
                if dice.one_in(5) {
                    world.change_a_mood(&mut dice);
                }
                world.call(number, &mut dice, &mut seen);
            }
            world.assert_health();
        }
        println!("{seen:?}");
        // A generator that never draws something shows nothing about it; few calls may miss some of it.
        if worlds * calls >= 4_000 {
            seen.assert_all_were_there();
        }
    }
}
