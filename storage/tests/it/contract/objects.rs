//! The contract of [`ObjectBook`].

use weir_config::vocab::TenantId;
use weir_storage::audit::AuditEvent;
use weir_storage::tenants::NewTenant;
use weir_storage::{MadeObject, ObjectBook, Registry};

use super::checks;

/// A store that keeps tenants as well: objects are theirs.
pub(crate) trait Book: ObjectBook + Registry {}

impl<S: ObjectBook + Registry> Book for S {}

checks! { dyn Book:
    an_object_is_whose_it_was_first,
    objects_go_with_their_tenant,
    what_no_tenant_made_is_nobodys,
}

const IDS: [TenantId; 2] = [TenantId::from_bytes([1; 16]), TenantId::from_bytes([2; 16])];

fn by() -> AuditEvent {
    AuditEvent { tenant: None, actor: "test".into(), action: "test".into(), target: None, detail: Default::default() }
}

fn tenants(book: &dyn Book) {
    for id in IDS {
        let new = NewTenant { id, name: id.to_string(), plan: None, config: Default::default() };
        book.create_tenant(new, by()).unwrap();
    }
}

fn made(tenant: TenantId, object: &str) -> MadeObject {
    MadeObject { tenant, upstream: "default".into(), object: object.into() }
}

fn own(book: &dyn Book, tenant: TenantId, objects: &[&str]) -> Vec<bool> {
    let objects: Vec<String> = objects.iter().map(|&id| id.to_owned()).collect();
    book.own_objects(tenant, "default", &objects).unwrap()
}

fn an_object_is_whose_it_was_first(book: &dyn Book) {
    tenants(book);
    book.note_objects(vec![made(IDS[0], "file-1"), made(IDS[1], "file-2"), made(IDS[0], "file-1")]).unwrap();
    book.note_objects(vec![made(IDS[1], "file-1")]).unwrap();
    assert_eq!(own(book, IDS[0], &["file-1", "file-2", "file-3"]), [true, false, false]);
    assert_eq!(own(book, IDS[1], &["file-1", "file-2", "FILE-2"]), [false, true, false]);
    assert_eq!(book.own_objects(IDS[0], "another", &["file-1".to_owned()]).unwrap(), [false], "another upstream's");
    assert_eq!(own(book, IDS[0], &[]), [] as [bool; 0]);
}

fn objects_go_with_their_tenant(book: &dyn Book) {
    tenants(book);
    book.note_objects(vec![made(IDS[0], "file-1"), made(IDS[1], "file-2")]).unwrap();
    assert!(book.delete_tenant(IDS[0], by()).unwrap());
    assert_eq!(own(book, IDS[0], &["file-1"]), [false]);
    assert_eq!(own(book, IDS[1], &["file-2"]), [true]);
}

fn what_no_tenant_made_is_nobodys(book: &dyn Book) {
    tenants(book);
    let nobody = TenantId::from_bytes([9; 16]);
    book.note_objects(vec![made(nobody, "file-1"), made(IDS[0], ""), made(IDS[0], &"a".repeat(257))]).unwrap();
    assert_eq!(own(book, nobody, &["file-1"]), [false]);
    assert_eq!(own(book, IDS[0], &["", &"a".repeat(257)]), [false, false]);
}
