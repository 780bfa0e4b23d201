-- The former version knows nothing of objects, and asks nobody whose they are.
DROP TABLE made_objects;
