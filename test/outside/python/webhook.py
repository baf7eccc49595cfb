"""Verifies the message on standard input (JSON: headers, body) under the secret argv[1]; fails if it is not genuine."""

import json
import sys

from standardwebhooks import Webhook, WebhookVerificationError

message = json.load(sys.stdin)
try:
    Webhook(sys.argv[1]).verify(message["body"], message["headers"])
except WebhookVerificationError:
    sys.exit(1)
