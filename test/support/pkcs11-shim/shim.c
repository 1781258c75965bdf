/*
 * A PKCS#11 module for tests: forwards every call to a real module, and delays, fails or alters the calls that a control file
 * names. The file is read in each of these calls, so that a test can change the behavior while the module runs. Next to it are:
 *
 *   shim.module   the real module
 *   shim.control  the control file; each line is FUNCTION ACTION [NUMBER]
 *   shim.log      a file with a line for each login and each finalization
 *
 *   delay N   the call takes N milliseconds in all
 *   hang      the call does not return while the line exists
 *   fail N    the call does nothing and returns N (0x30 is CKR_DEVICE_ERROR)
 *   log       for C_Sign: adds a line to the log when it begins
 *   corrupt   for C_Sign: changes one bit of the signature
 *   most N    for C_OpenSession: largest number of open sessions; CKR_SESSION_COUNT for more
 *   flags N   for C_GetTokenInfo: additional flags
 *   plain     for C_GetAttributeValue: CKA_EC_POINT without its octet string
 *   crash     the process ends
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <pkcs11.h>

static CK_FUNCTION_LIST_PTR real;
static CK_FUNCTION_LIST list;
static atomic_int under_way;
static atomic_int sessions;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[4096];
static struct stat version;

/* Returns the path of a file in this module's folder. */
static const char *beside(const char *name, char path[PATH_MAX]) {
  Dl_info here;
  if (dladdr((const void *)&beside, &here) == 0) return name;
  const char *end = strrchr(here.dli_fname, '/');
  snprintf(path, PATH_MAX, "%.*s/%s", end == NULL ? 1 : (int)(end - here.dli_fname), end == NULL ? "." : here.dli_fname, name);
  return path;
}

/* Reads the control file if it has changed. The caller holds the lock. */
static void refresh(void) {
  const char *path = beside("shim.control", (char[PATH_MAX]){0});
  struct stat now;
  if (stat(path, &now) != 0) memset(&now, 0, sizeof now);
  if (now.st_ino == version.st_ino && now.st_size == version.st_size && now.st_mtim.tv_sec == version.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == version.st_mtim.tv_nsec)
    return;
  version = now;
  FILE *file = now.st_ino == 0 ? NULL : fopen(path, "re");
  size_t length = file == NULL ? 0 : fread(lines, 1, sizeof lines - 1, file);
  lines[length] = 0;
  if (file != NULL) fclose(file);
}

/* Reports whether the control file has a line for the function and the action; stores its number in *number. */
static int told(const char *function, const char *action, unsigned long *number) {
  char a_function[64], an_action[64], a_number[64];
  int found = 0;
  pthread_mutex_lock(&lock);
  refresh();
  for (const char *line = lines; !found && *line != 0; line += strcspn(line, "\n"), line += *line != 0) {
    size_t length = strlen(function);
    if (strncmp(line, function, length) != 0) continue;
    int fields = sscanf(line, "%63s %63s %63[^\n ]", a_function, an_action, a_number);
    if (fields < 2 || strcmp(a_function, function) != 0 || strcmp(an_action, action) != 0) continue;
    found = 1;
    if (number != NULL && fields == 3) *number = strtoul(a_number, NULL, 0);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

static void note(const char *what, long number) {
  const char *path = beside("shim.log", (char[PATH_MAX]){0});
  FILE *file = fopen(path, "ae");
  if (file == NULL) return;
  fprintf(file, "%s %ld\n", what, number);
  fclose(file);
}

static void add(struct timespec *time, unsigned long ms) {
  time->tv_sec += ms / 1000;
  time->tv_nsec += (long)(ms % 1000) * 1000000;
  if (time->tv_nsec < 1000000000) return;
  time->tv_sec += 1;
  time->tv_nsec -= 1000000000;
}

static void pause_ms(unsigned long ms) {
  struct timespec span = {ms / 1000, (long)(ms % 1000) * 1000000};
  nanosleep(&span, NULL);
}

/* Runs the actions before the real call; returns 1 if there must be no real call. */
static int before(const char *function, struct timespec *start, CK_RV *result) {
  unsigned long value = CKR_FUNCTION_FAILED;
  clock_gettime(CLOCK_MONOTONIC, start);
  if (told(function, "crash", NULL)) _exit(3);
  while (told(function, "hang", NULL)) pause_ms(2);
  if (!told(function, "fail", &value)) return 0;
  *result = value;
  return 1;
}

static void after(const char *function, struct timespec *start) {
  unsigned long ms = 0;
  if (!told(function, "delay", &ms)) return;
  add(start, ms);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, start, NULL) != 0) {
  }
}

#define PASS(function, call)                       \
  struct timespec start;                           \
  CK_RV rv;                                        \
  if (!before(function, &start, &rv)) rv = (call); \
  after(function, &start)

static CK_RV initialize(CK_VOID_PTR arguments) {
  CK_C_INITIALIZE_ARGS *given = arguments;
  note("C_Initialize", given == NULL ? 0 : (long)given->flags);
  PASS("C_Initialize", real->C_Initialize(arguments));
  return rv;
}

static CK_RV finalize(CK_VOID_PTR reserved) {
  /* Finalizing a module while calls are in flight is undefined behavior. */
  note("C_Finalize", atomic_load(&under_way));
  PASS("C_Finalize", real->C_Finalize(reserved));
  return rv;
}

static CK_RV get_token_info(CK_SLOT_ID slot, CK_TOKEN_INFO_PTR info) {
  unsigned long flags = 0;
  PASS("C_GetTokenInfo", real->C_GetTokenInfo(slot, info));
  if (rv == CKR_OK && told("C_GetTokenInfo", "flags", &flags)) info->flags |= flags;
  return rv;
}

static CK_RV open_session(CK_SLOT_ID slot, CK_FLAGS flags, CK_VOID_PTR data, CK_NOTIFY notify, CK_SESSION_HANDLE_PTR session) {
  unsigned long most = 0;
  if (told("C_OpenSession", "most", &most) && (unsigned long)atomic_load(&sessions) >= most) return CKR_SESSION_COUNT;
  PASS("C_OpenSession", real->C_OpenSession(slot, flags, data, notify, session));
  if (rv == CKR_OK) atomic_fetch_add(&sessions, 1);
  return rv;
}

static CK_RV close_session(CK_SESSION_HANDLE session) {
  PASS("C_CloseSession", real->C_CloseSession(session));
  if (rv == CKR_OK) atomic_fetch_sub(&sessions, 1);
  return rv;
}

static CK_RV login(CK_SESSION_HANDLE session, CK_USER_TYPE user, CK_UTF8CHAR_PTR pin, CK_ULONG length) {
  note("C_Login", (long)length);
  PASS("C_Login", real->C_Login(session, user, pin, length));
  return rv;
}

static CK_RV find_objects_init(CK_SESSION_HANDLE session, CK_ATTRIBUTE_PTR template, CK_ULONG count) {
  PASS("C_FindObjectsInit", real->C_FindObjectsInit(session, template, count));
  return rv;
}

/* Sizes of a point on P-256 with its octet string, and without. */
enum { wrapped = 67, plain = 65 };

static CK_RV plain_point(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object, CK_ATTRIBUTE_PTR attribute) {
  CK_BYTE value[wrapped];
  CK_ATTRIBUTE whole = {CKA_EC_POINT, value, sizeof value};
  CK_RV rv = real->C_GetAttributeValue(session, object, &whole, 1);
  if (rv != CKR_OK) return rv;
  if (attribute->pValue != NULL) memcpy(attribute->pValue, value + 2, plain);
  attribute->ulValueLen = plain;
  return CKR_OK;
}

static CK_RV get_attribute_value(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object, CK_ATTRIBUTE_PTR template, CK_ULONG count) {
  int is_plain = count == 1 && template->type == CKA_EC_POINT && told("C_GetAttributeValue", "plain", NULL);
  PASS("C_GetAttributeValue", is_plain ? plain_point(session, object, template)
                                       : real->C_GetAttributeValue(session, object, template, count));
  return rv;
}

static CK_RV set_attribute_value(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object, CK_ATTRIBUTE_PTR template, CK_ULONG count) {
  PASS("C_SetAttributeValue", real->C_SetAttributeValue(session, object, template, count));
  return rv;
}

static CK_RV sign_init(CK_SESSION_HANDLE session, CK_MECHANISM_PTR mechanism, CK_OBJECT_HANDLE key) {
  PASS("C_SignInit", real->C_SignInit(session, mechanism, key));
  return rv;
}

static CK_RV sign(CK_SESSION_HANDLE session, CK_BYTE_PTR data, CK_ULONG length, CK_BYTE_PTR signature, CK_ULONG_PTR size) {
  atomic_fetch_add(&under_way, 1);
  if (told("C_Sign", "log", NULL)) note("C_Sign", (long)length);
  PASS("C_Sign", real->C_Sign(session, data, length, signature, size));
  if (rv == CKR_OK && signature != NULL && told("C_Sign", "corrupt", NULL)) signature[40] ^= 1;
  atomic_fetch_sub(&under_way, 1);
  return rv;
}

static CK_RV generate_key_pair(CK_SESSION_HANDLE session, CK_MECHANISM_PTR mechanism, CK_ATTRIBUTE_PTR public_template,
                               CK_ULONG public_count, CK_ATTRIBUTE_PTR private_template, CK_ULONG private_count,
                               CK_OBJECT_HANDLE_PTR public_key, CK_OBJECT_HANDLE_PTR private_key) {
  PASS("C_GenerateKeyPair", real->C_GenerateKeyPair(session, mechanism, public_template, public_count, private_template,
                                                    private_count, public_key, private_key));
  return rv;
}

CK_RV C_GetFunctionList(CK_FUNCTION_LIST_PTR_PTR result) {
  const char *path = beside("shim.module", (char[PATH_MAX]){0});
  void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CK_C_GetFunctionList get = module == NULL ? NULL : (CK_C_GetFunctionList)dlsym(module, "C_GetFunctionList");
  if (get == NULL || get(&real) != CKR_OK) return CKR_GENERAL_ERROR;
  list = *real;
  list.C_GetFunctionList = C_GetFunctionList;
  list.C_Initialize = initialize;
  list.C_Finalize = finalize;
  list.C_GetTokenInfo = get_token_info;
  list.C_OpenSession = open_session;
  list.C_CloseSession = close_session;
  list.C_Login = login;
  list.C_FindObjectsInit = find_objects_init;
  list.C_GetAttributeValue = get_attribute_value;
  list.C_SetAttributeValue = set_attribute_value;
  list.C_SignInit = sign_init;
  list.C_Sign = sign;
  list.C_GenerateKeyPair = generate_key_pair;
  *result = &list;
  return CKR_OK;
}
