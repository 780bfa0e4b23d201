//! Objects at providers, and who has made them.
//!
//! Invariant: an object is whose it was first; of a tenant no more than [`OBJECTS_MAX`] are kept, and a few on the way there.

use weir_config::vocab::TenantId;

use super::intern::find_tenant;
use super::readers::Stop;
use super::reads::Reads;
use super::tx::Tx;
use crate::error::{ReadError, WriteError};
use crate::objects::{MadeObject, OBJECT_ID_BYTES_MAX, OBJECTS_MAX};

/// How often the oldest are looked for: once in so many.
const SWEPT_EVERY: i64 = 1024;

impl Tx<'_> {
    /// Notes whose objects are. Of a tenant that is not there nothing is kept.
    pub(super) fn note_objects(&mut self, objects: &[MadeObject]) -> Result<(), WriteError> {
        for MadeObject { tenant, upstream, object } in objects {
            let Some(tenant) = find_tenant(self.conn, *tenant)? else { continue };
            if object.is_empty() || object.len() > OBJECT_ID_BYTES_MAX {
                continue;
            }
            let put = "INSERT OR IGNORE INTO made_objects (tenant, upstream, object) VALUES (?1, ?2, ?3)";
            if self.conn.prepare_cached(put)?.execute((tenant, upstream, object))? == 0 {
                continue;
            }
            if self.conn.last_insert_rowid() % SWEPT_EVERY == 0 {
                let sweep = "DELETE FROM made_objects WHERE tenant = ?1 AND id <= \
                    (SELECT id FROM made_objects WHERE tenant = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)";
                self.conn.prepare_cached(sweep)?.execute((tenant, OBJECTS_MAX))?;
            }
        }
        Ok(())
    }
}

impl Reads<'_> {
    /// Which of these objects a tenant has made, in their order.
    pub(crate) fn own_objects(
        &self,
        tenant: TenantId,
        upstream: &str,
        objects: &[String],
    ) -> Result<Vec<bool>, ReadError> {
        self.ask("read_objects", |conn| {
            let sql = "SELECT 1 FROM made_objects o JOIN tenants t ON t.id = o.tenant \
                WHERE o.upstream = ?1 AND o.object = ?2 AND t.uuid = ?3";
            let mut statement = conn.prepare_cached(sql)?;
            let mut own = |object: &String| statement.exists((upstream, object, tenant.as_bytes().as_slice()));
            Ok::<_, Stop>(objects.iter().map(&mut own).collect::<Result<_, _>>()?)
        })
    }
}
