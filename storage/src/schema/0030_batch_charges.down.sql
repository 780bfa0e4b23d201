-- The former version remembers only while it runs which results it has charged.
DROP TABLE batch_charges;
