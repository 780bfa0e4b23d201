//! Promise: an export says what it lacks. What waits in this machine's journal is named, by the command line and by the interface, and
//! no export is made of one journal where the store that all gateways share does not answer.

use std::net::SocketAddr;

use super::{PRICES, ask, end, provider, storage};
use crate::exports::lines;
use crate::stores::{Three, name};
use crate::support::{AUTH, Call, Client, Driver, Setup, call, eventually, weir};

/// How many spans of the tenant wait in the journal, as the header says.
const UNSHIPPED: &str = "x-service-unshipped-spans";

#[test]
#[ignore = "starts three stores: .ci/full"]
fn an_export_says_what_waits_in_the_journal() {
    let (three, database, provider) = (Three::new(), name(), provider());
    let journal = std::env::temp_dir().join(format!("{database}-0.db"));
    let stores = storage(&three, &database, journal.to_str().unwrap());
    let setup = Setup::new(Driver::Epoll).upstream(provider.url()).storage(&stores).with(AUTH).with(PRICES);
    let mut gateway = setup.start();
    let tenant = gateway.tenant("acme");
    let (_, key) = gateway.key(&tenant, "operator");
    let config = gateway.folder().join("service.yaml").to_str().unwrap().to_owned();
    let by_command = |more: &[&str]| {
        let output = weir(&[&["traces", "export", "--spans", "--config", &config], more].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        (String::from_utf8_lossy(&output.stdout).lines().count(), said)
    };
    let listed = Call::get("/api/v1/spans?format=jsonl").key(&key).bytes();

    // What is recorded is in an export, however short before it began.
    (0..3).for_each(|_| assert_eq!(call(gateway.addr, ask(&key)).status, 200));
    let in_journal = || by_command(&["--database", journal.to_str().unwrap()]).0;
    eventually("three are in the journal", || (in_journal() == 3).then_some(()));
    let (many, said) = by_command(&[]);
    assert_eq!(many, 3, "{said}");
    assert!(!said.contains("journal"), "{said}");
    let answer = call(gateway.addr, listed.clone());
    assert_eq!((lines(&answer).len(), answer.header(UNSHIPPED)), (3, None));

    // A store that takes slowly: a batch costs it longer than a question waits.
    let analytics = SocketAddr::from(([127, 0, 0, 1], three.analytics.port));
    let alter = |how: &str| {
        let statement = format!("ALTER TABLE weir_spans {how}");
        let done = call(analytics, Call::post(&format!("/?database={database}"), statement).bytes());
        assert_eq!(done.status, 200, "{}", done.text());
    };
    alter("ADD COLUMN slow UInt8 MATERIALIZED sleep(2.8)");
    let mut made = 3;
    let (answer, made) = eventually("what waits is named", || {
        assert_eq!(call(gateway.addr, ask(&key)).status, 200);
        made += 1;
        let answer = call(gateway.addr, listed.clone());
        answer.header(UNSHIPPED).is_some().then_some((answer, made))
    });
    let waiting: usize = answer.header(UNSHIPPED).unwrap().parse().unwrap();
    assert!(waiting >= 1 && lines(&answer).len() + waiting >= made, "{waiting} of {made}: {}", answer.text());
    alter("DROP COLUMN slow");
    eventually("all are shipped", || {
        let answer = call(gateway.addr, listed.clone());
        (answer.header(UNSHIPPED).is_none() && lines(&answer).len() == made).then_some(())
    });

    // Where it does not answer there is no export, rather than what one gateway has.
    three.analytics.kill();
    (0..4).for_each(|_| assert_eq!(call(gateway.addr, ask(&key)).status, 200));
    let mut client = Client::connect(gateway.addr).patient();
    client.say(&listed);
    let refused = client.answer();
    assert_eq!(refused.status, 503, "{}", refused.text());
    eventually("four more are in the journal", || {
        let page = Call::get("/api/v1/spans?limit=20").key(&key).bytes();
        (call(gateway.addr, page).json()["data"].as_array().is_some_and(|spans| spans.len() >= 4)).then_some(())
    });

    // A gateway that ended without shipping: what it had is counted, where it lies is said, and there it is.
    gateway.kill();
    gateway.wait();
    three.analytics.start();
    for whose in [&["--tenant", tenant.as_str()][..], &[]] {
        let (many, said) = by_command(whose);
        assert_eq!(many, made, "{said}");
        assert!(said.contains("4 span(s) of this gateway wait in its journal"), "{said}");
        assert!(said.contains(journal.to_str().unwrap()) && said.contains("--database"), "{said}");
    }
    let (many, _) = by_command(&["--database", journal.to_str().unwrap()]);
    assert!(many >= 4, "{many} in the journal");

    // The next one ships them, and an export has all and says nothing.
    gateway.restart();
    let (many, said) = eventually("all are shipped", || Some(by_command(&[])).filter(|(many, _)| *many == made + 4));
    assert!(many == made + 4 && !said.contains("journal"), "{said}");
    end(vec![gateway], &database);
    let (many, said) = by_command(&[]);
    assert!(many == made + 4 && said.contains("there is no gateway's journal"), "{said}");
}
