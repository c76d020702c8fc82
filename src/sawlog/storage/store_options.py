"""Options of object stores, by the names that fsspec's libraries have for them, as obstore takes them."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sawlog.errors import OptionError
from sawlog.guard import import_optional

RETRIES = {
    "max_retries": 3,
    "retry_timeout": dt.timedelta(seconds=60),
    "backoff": {"init_backoff": dt.timedelta(milliseconds=100), "max_backoff": dt.timedelta(seconds=2), "base": 4},
}
"""Number of times, and time, that a request is made again that a store did not answer."""
_CLIENT = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "1h"}
"""Times that are waited for a connection, for the next bytes of an answer, and for all of it."""

_OWN = ("client_options", "retry_config", "credential_provider")
"""Arguments of obstore's stores that are no settings of a service."""
_S3_NAMES = {
    "key": "access_key_id",
    "username": "access_key_id",
    "secret": "secret_access_key",
    "password": "secret_access_key",
    "token": "session_token",
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
    "requester_pays": "request_payer",
}
_S3_ENDPOINT = "aws_endpoint_url_s3"
_S3_CLIENT_NAMES = {
    "endpoint_url": "endpoint",
    "region_name": "region",
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_S3_ARGUMENT_NAMES = {"ServerSideEncryption": "server_side_encryption", "SSEKMSKeyId": "sse_kms_key_id"}
_AZURE_NAMES = {"sas_token": "sas_key", "anon": "skip_signature", "account_host": "endpoint"}
_AZURE_PARTS = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}
"""What a connection string says."""
_ANONYMOUS = "anon"
_NO_ACCOUNT = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
"""Account of a server of Google's protocol that asks for none."""
_BUCKET_REGION = "x-amz-bucket-region"


def make_s3_settings(options: Mapping[str, Any], bucket: str) -> dict[str, Any]:
    """Return the arguments of an `S3Store`.

    Raises:
        OptionError: For what it does not take, and for a profile without boto3.
    """
    config, settings = _split_options(options)
    _rename(config, {name: name.removeprefix("aws_") for name in config if name != _S3_ENDPOINT} | _S3_NAMES)
    client = _take_mapping(config, "client_kwargs")
    config |= _rename_nested("client_kwargs", client, _S3_CLIENT_NAMES, ("verify", "use_ssl"))
    arguments = _take_mapping(config, "s3_additional_kwargs")
    config |= _rename_nested("s3_additional_kwargs", arguments, _S3_ARGUMENT_NAMES)
    is_virtual = _take_botocore(_take_mapping(config, "config_kwargs"), settings)
    use_tls = config.pop("use_ssl", client.get("use_ssl", True))
    variables = (os.environ.get(name) for name in (_S3_ENDPOINT.upper(), "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
    endpoint = config.get(_S3_ENDPOINT) or config.get("endpoint") or next(filter(None, variables), None)
    if endpoint and "://" not in endpoint:
        endpoint = config["endpoint"] = f"{'https' if use_tls else 'http'}://{endpoint}"
    if is_virtual:
        config["virtual_hosted_style_request"] = True
        if endpoint:
            endpoint = config["endpoint"] = endpoint.replace("://", f"://{bucket}.", 1)
    _verify(client.get("verify", os.environ.get("AWS_CA_BUNDLE")), settings)
    profile = config.pop("profile", None)
    if not (settings.get("credential_provider") or config.keys() & {"access_key_id", "skip_signature"}):
        _take_profile(profile, config, settings)
    if not endpoint and not config.keys() & {"region", "default_region"}:
        config["region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _find_region(bucket)
    return _merge_settings(config, settings, endpoint)


def make_google_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a `GCSStore`."""
    config, settings = _split_options(options)
    config.pop("project", None)  # which only matters where buckets are made
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    endpoint = config.pop("endpoint_url", None) or config.get("base_url")
    if not endpoint and emulator:
        endpoint = f"http://{emulator.split('://')[-1]}"
    if endpoint:
        config["base_url"] = endpoint.rstrip("/")
    token = config.pop("token", _ANONYMOUS if emulator else None)
    is_anonymous = config.pop("anon", False)
    if token == _ANONYMOUS or is_anonymous or config.get("skip_signature"):
        config["skip_signature"] = True
        if endpoint:  # which uploads in parts and deletions do not heed
            config["service_account_key"] = json.dumps({"gcs_base_url": endpoint.rstrip("/"), **_NO_ACCOUNT})
    elif isinstance(token, Mapping):
        config["service_account_key"] = json.dumps(token)
    elif hasattr(token, "refresh"):
        settings["credential_provider"] = _make_google_provider(token)
    elif isinstance(token, str) and token not in ("google_default", "cloud"):
        if not os.path.isfile(token):
            raise OptionError("token: expected `anon`, `google_default`, `cloud`, or a file of credentials")
        config["application_credentials"] = token
    return _merge_settings(config, settings, config.get("base_url"))


def make_azure_settings(options: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return the arguments of an `AzureStore`.

    Args:
        options: Options by either name.
        host: The host of the account, where the URL has it.
    """
    config, settings = _split_options(options)
    _rename(config, _AZURE_NAMES)
    text = config.pop("connection_string", os.environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    config = {name: parts[part] for part, name in _AZURE_PARTS.items() if part in parts} | config
    account, _, domain = host.partition(".")
    if account:
        config.setdefault("account_name", account)
        if "fabric" in domain:
            config.setdefault("use_fabric_endpoint", True)
    credential = config.pop("credential", None)
    if credential is not None:
        if not hasattr(credential, "get_token"):
            raise OptionError("credential: expected an object of azure.identity; a key is `account_key`")
        settings["credential_provider"] = _make_azure_provider(credential)
    endpoint = config.get("endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = config["endpoint"] = f"https://{endpoint}"
    return _merge_settings(config, settings, endpoint)


def make_http_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an `HTTPStore`."""
    config, settings = _split_options(options)
    client = _take_mapping(config, "client_kwargs")
    _verify(client.pop("verify", None), settings)
    headers = {**client.pop("headers", {}), **(config.pop("headers", None) or {})}
    for name in (*config, *client):
        raise OptionError(f"no option {name!r} of an HTTP server; expected headers, client_kwargs or client_options")
    settings["client_options"].setdefault("default_headers", {}).update(headers)
    return _merge_settings({}, settings, "http://")


def _split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a service, and the other arguments of its store, with the defaults of all stores."""
    config = {name: value for name, value in options.items() if name not in _OWN and value is not None}
    settings: dict[str, Any] = {name: options[name] for name in _OWN if name in options}
    settings["client_options"] = {**_CLIENT, **settings.get("client_options", {})}
    settings.setdefault("retry_config", RETRIES)
    return config, settings


def _merge_settings(config: dict[str, Any], settings: dict[str, Any], endpoint: str | None) -> dict[str, Any]:
    """Return the arguments of a store; plain HTTP is allowed where the endpoint is such."""
    if endpoint and endpoint.startswith("http://"):
        settings["client_options"].setdefault("allow_http", True)
    return {**settings, "config": config} if config else settings


def _rename(config: dict[str, Any], names: Mapping[str, str]) -> None:
    """Have options under obstore's names."""
    for name in [name for name in config if name in names]:
        config[names[name]] = config.pop(name)


def _take_mapping(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Remove an option whose value is a mapping of options, and return that."""
    value = config.pop(name, {})
    if not isinstance(value, Mapping):
        raise OptionError(f"{name}: expected names and values")
    return dict(value)


def _rename_nested(
    option: str, values: Mapping[str, Any], names: Mapping[str, str], ignored: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return options in one of fsspec's, under obstore's names."""
    for name in values:
        if name not in names and name not in ignored:
            raise OptionError(f"{option}: no option {name!r}; expected {', '.join((*names, *ignored))}")
    return {names[name]: value for name, value in values.items() if name in names and value is not None}


def _take_botocore(values: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Take settings of botocore; return whether buckets are named by hosts."""
    client = settings["client_options"]
    for name in ("connect_timeout", "read_timeout"):
        if name in values:
            client[name] = dt.timedelta(seconds=float(values.pop(name)))
    proxies = values.pop("proxies", None)
    if proxies:
        client["proxy_url"] = proxies.get("https") or proxies.get("http")
    retries = values.pop("retries", None)
    if retries:
        settings["retry_config"] = {**RETRIES, "max_retries": int(retries["max_attempts"])}
    style = values.pop("s3", {}).get("addressing_style", "auto")
    for name in values:
        raise OptionError(
            f"config_kwargs: no option {name!r}; expected connect_timeout, proxies, read_timeout, retries, s3"
        )
    return bool(style == "virtual")


def _verify(verify: Any, settings: dict[str, Any]) -> None:
    """Take certificates to trust besides those of the system; `False` trusts all."""
    if verify is False:
        settings["client_options"]["allow_invalid_certificates"] = True
    elif isinstance(verify, str):
        settings["client_options"].setdefault("root_certificate", Path(verify).read_text("utf-8"))


def _take_profile(profile: str | None, config: dict[str, Any], settings: dict[str, Any]) -> None:
    """Have a profile's credentials and region: one that is named, or the default of the files of AWS, if there are."""
    environment = os.environ
    named = profile or environment.get("AWS_PROFILE")
    files = (
        environment.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        environment.get("AWS_CONFIG_FILE", "~/.aws/config"),
    )
    exists = any(os.path.isfile(os.path.expanduser(path)) for path in files)
    if not named and (environment.get("AWS_ACCESS_KEY_ID") or not exists):
        return
    boto3 = import_optional("boto3", "aws", "profiles of AWS")
    auth = import_optional("obstore.auth.boto3", "aws", "profiles of AWS")
    try:
        provider = auth.Boto3CredentialProvider(boto3.Session(profile_name=named))
    except ValueError:  # the files have no credentials
        return
    except Exception as error:
        raise OptionError(f"profile {named!r}: {error}") from error
    settings["credential_provider"] = provider
    config |= {name: value for name, value in provider.config.items() if name not in config}


def _find_region(bucket: str) -> str:
    """Return the region of a bucket in AWS, which is no secret."""
    request = urllib.request.Request(f"https://{bucket}.s3.amazonaws.com", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310, the URL is this one
            headers = answer.headers
    except urllib.error.HTTPError as error:  # refusals have it, too
        headers = error.headers
    except OSError:
        return "us-east-1"
    region = headers.get(_BUCKET_REGION, "")
    return region if re.fullmatch("[a-z0-9-]+", region) else "us-east-1"


def _make_google_provider(credentials: Any) -> Any:
    """Return a provider of obstore for credentials of google-auth."""
    transport = import_optional("google.auth.transport.requests", "remote", "credentials of google-auth")

    def provide() -> dict[str, Any]:
        if not credentials.valid:
            credentials.refresh(transport.Request())
        expiry = credentials.expiry
        return {"token": credentials.token, "expires_at": expiry and expiry.replace(tzinfo=dt.UTC)}

    return provide


def _make_azure_provider(credential: Any) -> Any:
    """Return a provider of obstore for credentials of azure.identity."""

    def provide() -> dict[str, Any]:
        token = credential.get_token("https://storage.azure.com/.default")
        return {"token": token.token, "expires_at": dt.datetime.fromtimestamp(token.expires_on, dt.UTC)}

    return provide
