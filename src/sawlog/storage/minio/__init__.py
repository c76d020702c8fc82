"""Objects as MinIO keeps them on its drives, as the files that they are to its clients."""

from sawlog.storage.minio.objects import Objects
from sawlog.storage.minio.shards import StoredObject

__all__ = ["Objects", "StoredObject"]
