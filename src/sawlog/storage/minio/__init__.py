"""Objects as MinIO keeps them on its drives, as the files that they are to its clients."""

from sawlog.storage.minio.objects import AS_OF, DriveObjects, parse_as_of
from sawlog.storage.minio.shards import StoredObject

__all__ = ["AS_OF", "DriveObjects", "StoredObject", "parse_as_of"]
