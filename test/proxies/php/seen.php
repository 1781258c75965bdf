<?php
// A line of JSON about each request, as PHP programs see it. The built-in server chooses the file by its own reading of the path.
$identity = [];
foreach (['ISSUER', 'SUBJECT', 'CLIENT', 'SCOPE'] as $name) {
    if (isset($_SERVER["HTTP_X_JWKSD_$name"])) {
        $identity[strtolower($name)] = $_SERVER["HTTP_X_JWKSD_$name"];
    }
}
header('Content-Type: application/json');
echo json_encode([
    'paths' => [$_SERVER['SCRIPT_NAME'], rawurldecode(strtok($_SERVER['REQUEST_URI'], '?'))],
    'identity' => (object) $identity,
    'method' => $_SERVER['REQUEST_METHOD'],
    'body' => strlen(file_get_contents('php://input')),
], JSON_INVALID_UTF8_SUBSTITUTE);
